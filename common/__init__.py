"""Values and helpers that every room needs: ids, addresses, error codes, decoding of untrusted bytes. Imports nothing of ours."""
