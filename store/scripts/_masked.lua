-- _masked: the version of the secrets that are masked in a conversation's events.
-- Included by scripts that store data from a sandbox.
-- include: _log.lua
-- Returns the version; '' for a conversation without secrets. version: set by the last change of secrets. incarnation:
-- stands for the initial secrets.
local function version_of_secrets(version, incarnation)
  if version then return version end
  return redis.call('EXISTS', root .. ':secrets', root .. ':start') > 0 and incarnation or ''
end
