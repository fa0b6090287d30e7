"""The field's classic bugs, planted one at a time in the code under test, to show that the harness finds them."""
