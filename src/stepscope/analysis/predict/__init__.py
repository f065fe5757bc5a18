"""From the fitted step model to points, devices and layouts that nobody measured."""
