"""The shipped grids of `fedgr-secure tradeoff`."""
