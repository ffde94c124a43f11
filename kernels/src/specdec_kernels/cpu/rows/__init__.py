"""Operations on rows of logits, compiled: one pass over memory where torch needs several."""
