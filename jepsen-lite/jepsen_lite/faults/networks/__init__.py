"""Networks for clusters that are to be broken: a namespace for each node, and between them a switch that does as it is reply."""
