"""A directory as a Bamboo log: records, publishing, replicating, materialising."""
