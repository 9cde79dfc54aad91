# The lab: nodes on this machine (tests/lab/README.md). All of it needs root.
LAB_PYTHON = $(BIN)/python
NODES ?= 3
N ?= 1

.PHONY: lab lab-up lab-ssh lab-down lab-faults
lab: setup  ## build a rack on this machine and run the whole product against it
	$(LAB_PYTHON) -m pytest tests/lab -m lab
lab-up: setup  ## leave a rack of NODES=3 standing
	$(LAB_PYTHON) -m tests.lab up $(NODES)
lab-ssh:  ## log in to node N=1 of the standing rack
	@$(LAB_PYTHON) -m tests.lab ssh $(N)
lab-down:  ## end the standing rack
	$(LAB_PYTHON) -m tests.lab down
lab-faults: setup  ## play every fault of tests/lab/faults/table.toml; prints the table and keeps it in docs/faults.md
	$(LAB_PYTHON) -m tests.lab.faults
