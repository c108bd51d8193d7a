"""The charts of the metrics screen: which are shown, their axes, the drawing, and the widget."""
