"""What gputop tells without a dashboard. Nothing here needs Textual."""
