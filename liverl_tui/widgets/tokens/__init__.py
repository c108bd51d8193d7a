"""The view of the tokens of one trial: text in heat, and the facts of the token under the cursor."""
