"""`specdec config`: the schema of `speculative_config`, and checks of one."""
