"""What keeps a plugin's mistakes from others: its calls are guarded, what it returns is copied and checked.

`guard` calls a proposer, `draft` checks what it drafts, `verdict` what a sampler decides; `sample` ends one sample whose work
fails. A reader of a step that goes right need not open them.
"""
