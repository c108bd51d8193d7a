"""Where the time of a step goes: the step on a time axis, and all steps as stacked bars."""
