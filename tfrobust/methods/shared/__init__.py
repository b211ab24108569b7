"""The base class `Method`, and parts that several training methods use."""
