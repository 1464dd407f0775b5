"""What a batch changes: the type lattice, the choice of columns, the policy, and the plan as one value."""
