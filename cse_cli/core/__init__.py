"""What every feature uses: results, run folders, devices, processes, the console, statistics, plots."""
