"""Whether the harness finds bugs: the field's classics, planted one at a time in the code under test."""
