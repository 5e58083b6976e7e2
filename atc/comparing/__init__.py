"""Reports of `atc compare`: what a tensor's difference looks like, and the files for people and machines."""
