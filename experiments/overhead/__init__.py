"""What orchestration alone costs: graphs of nodes that do nothing, here and in other systems."""
