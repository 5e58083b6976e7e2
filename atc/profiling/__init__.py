"""`atc profile`: where the time of a package goes, kernel by kernel, and against what the machine can do."""
