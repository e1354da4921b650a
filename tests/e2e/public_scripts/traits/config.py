# Assignments that the script executes in its own namespace, as nanoGPT does.
learning_rate = 0.5
steps = 3
