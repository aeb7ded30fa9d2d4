-- Bids with the directories of their address.
SELECT auction, bidder, price, channel, [split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6)] FROM bids;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', channel: 'VARCHAR', directories: 'VARCHAR[]'});
