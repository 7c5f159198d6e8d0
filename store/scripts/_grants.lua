-- _grants: the grants of people, and which people have used this server.
-- include: _clock.lua

-- Sets a new version of the grants. It is never repeated, even after Redis was emptied.
local function note_grants()
  local version = redis.call('GET', root .. ':grants_version')
  local later = version and tonumber(version) >= tonumber(now)
  redis.call('SET', root .. ':grants_version', later and string.format('%.0f', version + 1) or now)
end
