"""Have the data sets that the desired state names (section `datasets`), and nothing else.

pyinfra INVENTORY deploy/datasets.py
"""

from deploy import data, stages

stages.examine()
data.datasets()
