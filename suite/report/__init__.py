"""What a run tells its reader: the terminal's summary, ``report.json``, and one page of HTML."""
