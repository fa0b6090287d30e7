"""Tables made of tables: a DataFrame in, a DataFrame out, no input or output of their own."""
