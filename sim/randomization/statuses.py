"""What a parameter's status is called, in files and in words: whether the log tells it."""

IDENTIFIED, PRIOR, GIVEN, CONTRADICTS = "identified", "not identifiable", "given", "contradicts its prior"
STATUSES = (IDENTIFIED, PRIOR, GIVEN, CONTRADICTS)
