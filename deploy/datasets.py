"""Have the data sets that the desired state names (section `datasets`), and nothing else.

pyinfra INVENTORY deploy/datasets.py
"""

from shakedown.runner import data, stages

stages.examine()
data.datasets()
