"""What a collection holds after its files changed, also if the process that indexes is killed."""
