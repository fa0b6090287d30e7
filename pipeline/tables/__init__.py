"""Tables made of tables: a DataFrame in, a DataFrame out, without input or output."""
