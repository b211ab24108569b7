"""What several training methods use, the base class `Method` first."""
