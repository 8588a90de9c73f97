"""The ways money enters and leaves; each speaks to one part of the outside world."""
