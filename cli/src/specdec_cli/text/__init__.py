"""`specdec generate` and `specdec chat`: text on a terminal, with accepted drafts in colour."""
