"""Five hospitals, one with corrupted labels."""
