"""What the drop-in classes share: tensors in nested arguments, tables, gradient hooks."""
