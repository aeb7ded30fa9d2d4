-- Bids with their auctions of one category.
SELECT b.*, a.* FROM bids AS b JOIN auctions AS a ON a.id = b.auction WHERE a.category = 10;
-- What the job wrote.
SELECT unnest(bid), unnest(auction) FROM read_json('{results}', format = 'newline_delimited', columns = {bid: 'STRUCT(auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time BIGINT, extra VARCHAR)', auction: 'STRUCT(id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra VARCHAR)'});
