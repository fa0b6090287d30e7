"""What breaks a cluster: fault plans drawn from a seed, and who carries them out.

`drawing.draw_plan` makes a plan of the kinds in `kinds.KINDS`; `carrying_out.carry_out` lets it strike a LocalCluster.
"""
