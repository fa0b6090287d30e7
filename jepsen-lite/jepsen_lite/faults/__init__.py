"""Faults: `plan_generator.draw_plan` draws a plan of the kinds in `kinds.KINDS`, and `injector.carry_out` carries it out."""
