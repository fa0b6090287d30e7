"""Families of `kraftlab pipeline` commands, one module each. `command.COMMANDS` names them, and they are imported when called."""
