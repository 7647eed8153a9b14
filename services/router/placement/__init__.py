"""A request placed on a fleet, with its ticket. Pure: the service and the simulator run it."""
