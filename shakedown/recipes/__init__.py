"""What can be launched: recipes, options, programs and their arguments, data sets."""
