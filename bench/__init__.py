"""Speed and memory against the floor and against Ansible: `make bench`. How it measures: bench/README.md."""
