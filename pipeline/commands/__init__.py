"""Families of `kraftlab pipeline` commands, one module each; `command.COMMANDS` names them and imports them when called."""
