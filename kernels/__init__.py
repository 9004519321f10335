"""What runs on the device: shapes, pools, copy plans, copy methods and prefill. Importing it touches no driver."""
