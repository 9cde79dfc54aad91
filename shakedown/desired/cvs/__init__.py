"""Configuration files of ROCm/cvs as layers of a desired state: nothing in them is read over without a word."""
