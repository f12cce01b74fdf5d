"""What the claims are measured with: checkpoints, files made and broken, reference run, comparison, oracles."""
