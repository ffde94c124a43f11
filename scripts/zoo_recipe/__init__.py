"""The recipe of the zoo: corpus, tokenizer, target and drafts. `PYTHONPATH=scripts python -m zoo_recipe` trains them."""
