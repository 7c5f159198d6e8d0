-- _masked: the version of the secrets that a conversation's events must not show. Included by scripts that store what a
-- sandbox says.
-- include: _log.lua
-- version: as the last change of the secrets has left it. incarnation: stands for those that the conversation began with.
-- Returns '' for a conversation without secrets.
local function version_of_secrets(version, incarnation)
  if version then return version end
  return redis.call('EXISTS', root .. ':secrets', root .. ':start') > 0 and incarnation or ''
end
