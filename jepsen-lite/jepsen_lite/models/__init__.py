"""What one object does when operations come one at a time: immutable states, pure steps."""
