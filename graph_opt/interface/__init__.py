"""What a model takes and gives, changed on a user's wish: dtypes of inputs and outputs, and images instead of tensors.

Takes a graph as read; gives one whose inputs and outputs are as asked, before anything is optimised. Knows no flag.
"""
