"""Losses: functions of tensors that return one value per example, and gradient penalties."""
