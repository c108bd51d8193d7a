"""What the panes are made of: line-drawing widgets that know structs and no source."""
